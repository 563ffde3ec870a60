*** Comments ***
Clock tree, rate of the serial line, tick, interrupts and watchdog, by the chip's registers (RM0385, RM0390) and by what
follows from them. Frequencies are computed here, from the registers and the crystal alone. The suite knows no model.

*** Settings ***
Resource                keywords.resource

*** Variables ***
${RCC_CR}               0x40023800
${RCC_PLLCFGR}          0x40023804
${RCC_CFGR}             0x40023808
${FLASH_ACR}            0x40023C00
${FLASH_CR}             0x40023C10
${IWDG_PR}              0x40003004
${IWDG_RLR}             0x40003008
${NVIC_ISER1}           0xE000E104
${LSI_HZ}               32000
${HZ_PER_WAIT_STATE}    30000000
${AWAKE}                2000000

*** Keywords ***
Register
    [Arguments]                 ${address}
    ${text}=                    Execute Command    sysbus ReadDoubleWord ${address}
    ${value}=                   Evaluate    int($text, 16)
    RETURN                      ${value}

Core Hz
    [Documentation]    Of the PLL, which must be what the core runs on, with its clock from the board.
    ${on}=                      Register    ${RCC_CR}
    ${pll}=                     Register    ${RCC_PLLCFGR}
    ${choice}=                  Register    ${RCC_CFGR}
    Should Be True              ${on} >> 16 & 1 and ${on} >> 24 & 1 and ${pll} >> 22 & 1
    Should Be True              ${choice} & 15 == 10 and ${choice} >> 4 & 15 == 0
    ${input}=                   Evaluate    ${HSE_HZ} / (${pll} & 63)
    Should Be True              1e6 <= ${input} <= 2e6
    ${vco}=                     Evaluate    ${input} * (${pll} >> 6 & 511)
    Should Be True              100e6 <= ${vco} <= 432e6
    ${core}=                    Evaluate    ${vco} / (2 * (${pll} >> 16 & 3) + 2)
    RETURN                      ${core}

Bus Hz
    [Documentation]    Of APB1, whose divider begins at bit 10 of RCC_CFGR, or APB2: bit 13.
    [Arguments]                 ${shift}
    ${core}=                    Core Hz
    ${choice}=                  Register    ${RCC_CFGR}
    ${divider}=                 Evaluate    ${choice} >> ${shift} & 7
    ${hz}=                      Evaluate    ${core} / (1 if ${divider} < 4 else 2 << ${divider} - 4)
    RETURN                      ${hz}

Line Should Have
    [Arguments]                 ${baud}
    ${hz}=                      Bus Hz    ${SERIAL_BUS}
    ${divider}=                 Register    ${USART_BRR}
    Should Be True              abs(${hz} / ${divider} / ${baud} - 1) < 0.01

Uptime
    ${found}=                   Ask    stats    ^uptime_ms (\\d+)$
    Wait For Line On Uart       ^ok$    treatAsRegex=true
    ${milliseconds}=            Convert To Integer    ${found.Groups[0]}
    RETURN                      ${milliseconds}

Instructions
    ${text}=                    Execute Command    cpu ExecutedInstructions
    ${count}=                   Evaluate    int($text, 16)
    RETURN                      ${count}

*** Test Cases ***
The Clocks Are The Chip's Limits
    Boot
    ${core}=                    Core Hz
    ${apb1}=                    Bus Hz    10
    ${apb2}=                    Bus Hz    13
    Should Be Equal As Integers    ${core}    ${CORE_HZ}
    Should Be Equal As Integers    ${apb1}    ${APB1_HZ}
    Should Be Equal As Integers    ${apb2}    ${APB2_HZ}

The Flash Has The Wait States Of That Clock And Reads Ahead
    Boot
    ${access}=                  Register    ${FLASH_ACR}
    Should Be True              ${access} & 15 == (${CORE_HZ} - 1) // ${HZ_PER_WAIT_STATE}
    Should Be True              ${access} >> 8 & 3 == 3

The Clocks Are The Same After A Restart
    Boot
    Ask                         reboot    ^ok reboot$
    Wait For Line On Uart       ready
    ${core}=                    Core Hz
    Should Be Equal As Integers    ${core}    ${CORE_HZ}
    Line Should Have            115200

The Line Has The Rate That Was Asked For And Goes Back Where Nobody Speaks At It
    Boot
    Line Should Have            115200
    Ask                         baud 230400    ^ok baud 230400$
    Test If Uart Is Idle        0.5
    Line Should Have            230400
    Test If Uart Is Idle        2
    Line Should Have            115200
    Ask                         ping    ^ok pong$

The Slowest Rate Is Taken
    Boot
    Ask                         baud 9600    ^ok baud 9600$
    Test If Uart Is Idle        0.5
    Line Should Have            9600

A Rate That The Line Cannot Do Is Not Taken
    [Documentation]    Sixteen clocks a bit, and no more than three million bits.
    Boot
    ${hz}=                      Bus Hz    ${SERIAL_BUS}
    ${above}=                   Evaluate    int(min(3000000, ${hz} / 16)) + 1
    Ask                         baud 9599    ^err argument
    Ask                         baud 3000001    ^err argument
    Ask                         baud ${above}    ^(ok baud|err argument)
    Test If Uart Is Idle        0.5
    Line Should Have            115200

A Millisecond Takes A Millisecond
    [Documentation]    Renode goes on between two keywords, the board model does not.
    Boot
    ${before}=                  Uptime
    Test If Uart Is Idle        3
    ${after}=                   Uptime
    Should Be True              2990 <= ${after} - ${before} <= 4500

The Core Sleeps While It Waits
    Boot
    ${before}=                  Instructions
    Test If Uart Is Idle        2
    ${after}=                   Instructions
    Should Be True              0 < ${after} - ${before} < ${AWAKE}

The Interrupt Of The Line Is The Only One That Is On
    Boot
    ${enabled}=                 Register    ${NVIC_ISER1}
    Should Be True              ${enabled} == 1 << ${SERIAL_IRQ} - 32

Bytes That Come While The Core Computes Are Kept
    Boot
    Ask                         pattern 1    ^ok pattern$
    Write To Uart               train 0\nping\nled 1\nping\n
    Wait For Line On Uart       ^ok train 0 \\d+ \\d+\\.\\d{4}$    treatAsRegex=true
    Wait For Next Line On Uart
    Wait For Line On Uart       ^ok pong$    treatAsRegex=true
    Ask                         stats    ^bytes_lost 0$

The Flash Is Locked Behind A Save
    [Documentation]    FLASH_CR_LOCK: a stray store then changes nothing.
    Boot
    Ask                         save    ^ok save 1$
    ${control}=                 Register    ${FLASH_CR}
    Should Be True              ${control} >> 31 == 1

The Line's Pins Are Pulled Up
    [Documentation]    GPIO_PUPDR: a line that nobody drives is silent.
    Boot
    ${send}=                    Register    ${SEND_PULLS}
    ${receive}=                 Register    ${RECEIVE_PULLS}
    Should Be True              ${send} >> 2 * ${SEND_PIN} & 3 == 1
    Should Be True              ${receive} >> 2 * ${RECEIVE_PIN} & 3 == 1

The Watchdog Is Slower Than An Erase And Faster Than Twenty Seconds
    Boot
    ${prescaler}=               Register    ${IWDG_PR}
    ${reload}=                  Register    ${IWDG_RLR}
    ${seconds}=                 Evaluate    (${reload} + 1) * (4 << ${prescaler}) / ${LSI_HZ}
    Should Be True              6 < ${seconds} < 20
