*** Comments ***
The flash controller (RM0385 and RM0390, chapter 3), driven by a firmware that was written for this
(test/fixtures/emulator): the same answers of Renode's model, peripherals/flash.cs, and of the board model's.

*** Settings ***
Resource                keywords.resource

*** Keywords ***
Start Exerciser
    Power On                    ${EXERCISER}
    Wait For Line On Uart       ^boot$    treatAsRegex=true

Word Should Be
    [Arguments]                 ${offset}    ${expected}
    ${address}=                 Evaluate    hex(${SECTOR} + ${offset})
    ${value}=                   Execute Command    sysbus ReadDoubleWord ${address}
    Should Be Equal As Integers    ${value}    ${expected}

Power Fails In Operation
    [Documentation]    The sector holds zeros; what the operations before the power cut have made of its first words.
    [Arguments]                 ${operation}    ${first}    ${second}
    Start Exerciser
    ${next}=                    Evaluate    hex(${SECTOR} + 4)
    Execute Command             sysbus WriteDoubleWord ${SECTOR} 0
    Execute Command             sysbus WriteDoubleWord ${next} 0
    Execute Command             sysbus.flashController PowerFailsIn ${operation}
    Write To Uart               f
    Wait For Line On Uart       ^boot$    treatAsRegex=true
    Word Should Be              0    ${first}
    Word Should Be              4    ${second}

*** Test Cases ***
Programming Only Clears Bits And Erasing Sets Them
    Start Exerciser
    Write To Uart               f
    Wait For Line On Uart       ^erased=ffffffff$    treatAsRegex=true
    Wait For Line On Uart       ^and=0f000f00$    treatAsRegex=true
    Wait For Line On Uart       ^next=cafef00d$    treatAsRegex=true
    Wait For Line On Uart       ok

A Store Of Another Size Than Programmed Is Refused
    Start Exerciser
    Write To Uart               f
    Wait For Line On Uart       ^status=00000040$    treatAsRegex=true
    Wait For Line On Uart       ^refused=ffffffff$    treatAsRegex=true
    Wait For Line On Uart       ^pair=33333333$    treatAsRegex=true

The Lock Holds
    Start Exerciser
    Write To Uart               f
    Wait For Line On Uart       ^locked=80000000$    treatAsRegex=true
    Wait For Line On Uart       ok
    Write To Uart               f
    Wait For Line On Uart       ^and=0f000f00$    treatAsRegex=true

The Core Stands Still While A Sector Is Erased
    Start Exerciser
    Write To Uart               f
    Should Not Be On Uart       erased    timeout=${STILL_ERASING_S}
    Wait For Line On Uart       erased    timeout=0.1

A Power Cut Leaves What Was Done
    Power Fails In Operation    1    0xffffffff    0xffffffff

A Power Cut After One Word
    Power Fails In Operation    2    0x0ff0ff00    0xffffffff

A Power Cut After Two Words
    Power Fails In Operation    3    0x0f000f00    0xffffffff

A Power Cut After Three Words
    Power Fails In Operation    4    0x0f000f00    0xcafef00d

Flash Outlives Power And SRAM Does Not
    Start Exerciser
    Write To Uart               f
    Wait For Line On Uart       ok
    Write To Uart               h
    Wait For Line On Uart       ok
    Execute Command             sysbus.resetAndClock PowerCycle
    Wait For Line On Uart       ^boot$    treatAsRegex=true
    Word Should Be              4    0xcafef00d
    ${sram}=                    Execute Command    sysbus ReadDoubleWord ${CANVAS}
    Should Be Equal As Integers    ${sram}    0xa5a5a5a5
