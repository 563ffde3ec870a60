*** Comments ***
The board itself: why it started, LED, button, watchdog, memory. The suite knows no model.

*** Settings ***
Resource                keywords.resource

*** Variables ***
${IWDG_KR}              0x40003000
${IWDG_PR}              0x40003004
${IWDG_RLR}             0x40003008

*** Keywords ***
Button Should Read
    [Arguments]                 ${expected}
    ${pins}=                    Execute Command    sysbus ReadDoubleWord ${BUTTON_REGISTER}
    ${down}=                    Evaluate    int($pins, 16) & ${BUTTON_MASK} == ${BUTTON_DOWN}
    Should Be Equal As Strings    ${down}    ${expected}

*** Test Cases ***
The Cause Of Each Start Is Told
    Power On
    Wait For Line On Uart       ^start power$    treatAsRegex=true
    Wait For Line On Uart       ready
    Ask                         reboot    ^ok reboot$
    Wait For Line On Uart       ^start software$    treatAsRegex=true
    Wait For Line On Uart       ready
    Execute Command             machine Reset
    Wait For Line On Uart       ^start pin$    treatAsRegex=true
    Wait For Line On Uart       ready
    Execute Command             sysbus.resetAndClock PowerCycle
    Wait For Line On Uart       ^start power$    treatAsRegex=true
    Wait For Line On Uart       ready
    Ask                         ping    ^ok pong$

The Watchdog Restarts A Board That Does Not Feed It In Time
    [Documentation]    Its period is made 0.125 ms, and the firmware wakes every millisecond.
    Boot
    Execute Command             pause
    Execute Command             sysbus WriteDoubleWord ${IWDG_KR} 0x5555
    Execute Command             sysbus WriteDoubleWord ${IWDG_PR} 0
    Execute Command             sysbus WriteDoubleWord ${IWDG_RLR} 0
    Execute Command             sysbus WriteDoubleWord ${IWDG_KR} 0xAAAA
    Execute Command             start
    Wait For Line On Uart       ^start watchdog$    treatAsRegex=true
    Wait For Line On Uart       ready
    Ask                         ping    ^ok pong$

The Watchdog Leaves A Waiting Board Alone
    Boot
    Test If Uart Is Idle        12
    Ask                         ping    ^ok pong$

The LED Follows The Command
    Boot
    Create Led Tester           ${USER_LED}
    Assert Led State            false    timeout=0
    Ask                         led 1    ^ok led$
    Assert Led State            true    timeout=0.1
    Ask                         led 0    ^ok led$
    Assert Led State            false    timeout=0.1

The Button Reaches Its Pin
    Boot
    Button Should Read          False
    Execute Command             ${USER_BUTTON} Press
    Button Should Read          True
    Execute Command             ${USER_BUTTON} Release
    Button Should Read          False
